"""What LATES is compared with: one idea a file, written from the papers' formulas.

Every file has `fit(logits or features, labels)`, which returns a frozen object whose `log_probabilities` maps logits
[n, classes] to log-probabilities [n, classes], and whose `parameters` counts what was learned.

descent        L-BFGS-B on a function of torch
temperature    one temperature, exact
vector         a scale and a shift for each class
structured     structured matrix scaling, and its diagonal
dirichlet      a full matrix with an off-diagonal penalty
mixture        ensemble temperature scaling
isotonic       one monotone map of all probabilities
spline         a spline on the top label
parameterised  a temperature for each row, from its largest logits
layer          one layer alone: the last one refitted, the best of all
density        a temperature for each row, from distances to the training data
augmentation   the mean over augmented copies of a test image
"""
