"""ONNX: export the calibrated model to one file, check it, then serve it without PyTorch. Needs `lates[export]`."""

import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

import lates
from lates.demo import load_network, load_splits
from lates.export import check_onnx, export_onnx


class Server:
    """All that a service holds: numpy in, calibrated probabilities out, any number of rows."""

    def __init__(self, path: Path) -> None:
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def predict(self, images: np.ndarray) -> np.ndarray:
        (probabilities,) = self.session.run(["probabilities"], {"images": images})
        return np.asarray(probabilities)


def main() -> None:
    splits = load_splits().shrink(4)
    network = load_network()  # the demo's, trained already
    calibrated = lates.calibrate(network, train=splits.train.batches, holdout=splits.holdout.batches)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fashion.onnx"
        export_onnx(calibrated, splits.test.images[:1], path)
        check = check_onnx(calibrated, path, splits.test.images)
        print(f"one file of {path.stat().st_size / 1024:.0f} KiB; voting: {', '.join(calibrated.member_names)}")
        print(f"against PyTorch, {check.rows:,} images: largest difference of a probability {check.difference:.1e}")
        assert check.passed

        server = Server(path)
        images, labels = splits.test.images.numpy(), splits.test.labels.numpy()
        for image, label in zip(images[:5], labels[:5], strict=True):
            (probabilities,) = server.predict(image[None])
            top = int(probabilities.argmax())
            print(f"class {top}, probability {probabilities[top]:.3f}, {'right' if top == label else 'wrong'}")
        print(f"ece over all: {lates.metrics.ece(np.log(server.predict(images)), labels):.3f}")


if __name__ == "__main__":
    main()
