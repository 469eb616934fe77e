"""Do views help on text and tables? The measurement behind `results/text-and-tables.md`, which has the rule.

problem     a network with its loaders, clean and shifted, and the candidates
text        TREC-6 and a fine-tuned MiniLM
tables      events of a telescope and a multilayer perceptron
measuring   a problem -> what each method predicts on each set of rows
rule        predictions of all seeds -> the choice and the tables of the page
"""
