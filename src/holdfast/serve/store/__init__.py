"""What a server keeps of many jobs: their events for good, their pace in short, orders until answered."""

from holdfast.errors import StoreError
from holdfast.serve.store.store import NEWS, Store
from holdfast.serve.store.values import Kept, PacePoint, RankPace, RunRow, StoreSize, Taken

__all__ = ["NEWS", "Kept", "PacePoint", "RankPace", "RunRow", "Store", "StoreError", "StoreSize", "Taken"]
