"""`lates` with other tools. Nothing here is imported by the rest of the library; each file imports its tool, if any.

loggers         plain {name: float} for TensorBoard, Weights & Biases, MLflow, a CSV file
hub             a folder in the layout of the Hugging Face hub
torchmetrics    the metrics as torchmetrics classes
after_training  what the callbacks of trainers share
transformers    a callback of transformers' `Trainer` that calibrates when training ends
lightning       a Lightning callback that calibrates at the end of `fit`
"""
