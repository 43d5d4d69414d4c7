"""Where cputune keeps its files: CPUTUNE_HOME, else the user's data folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class Home:
    """The data folder and the places in it; nothing is made before it is written to."""

    root: Path

    @classmethod
    def find(cls) -> Self:
        """The folder that CPUTUNE_HOME names, else the platform's user data folder."""
        named = os.environ.get("CPUTUNE_HOME")
        if named:
            return cls(Path(os.path.expanduser(named)).absolute())
        import platformdirs

        return cls(Path(platformdirs.user_data_dir("cputune", appauthor=False)))

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.root / "cputune.sqlite3"

    @property
    def lock(self) -> Path | None:
        """CPUTUNE_LOCK in place of the host-wide measuring lock; None for that one."""
        named = os.environ.get("CPUTUNE_LOCK")
        return Path(named) if named else None

    @property
    def models(self) -> Path:
        """Fetched and made sources, and the index of digests."""
        return self.root / "models"

    @property
    def variants(self) -> Path:
        """The cache of made model files."""
        return self.root / "variants"

    @property
    def references(self) -> Path:
        """The cache of quality references."""
        return self.root / "references"

    @property
    def logs(self) -> Path:
        """What workers print."""
        return self.root / "logs"
