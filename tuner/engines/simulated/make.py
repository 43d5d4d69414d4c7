"""Makes a variant for the simulated engine: run as `python -P -m MODULE SOURCE TARGET PARAMETERS_JSON`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tuner.engines.simulated import files


def main(argv: Sequence[str] | None = None) -> None:
    """Write TARGET as the variant that the parameters name; SOURCE must be readable."""
    source, target, parameters = sys.argv[1:] if argv is None else argv
    with open(source, "rb") as file:
        file.read(1)
    files.write(Path(target), str(json.loads(parameters)["variant"]))


if __name__ == "__main__":
    main()
