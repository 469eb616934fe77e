"""Where `lates` meets the tools around it. Nothing here is imported by the rest; each file imports its tool, if any.

loggers        plain {name: float} for TensorBoard, Weights & Biases, MLflow, a CSV file
hub            a folder in the layout of the Hugging Face hub
torchmetrics   the metrics as torchmetrics classes
lightning      a Lightning callback that calibrates at the end of `fit`
"""
