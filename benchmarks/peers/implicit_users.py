"""implicit's exact ALS user solve on one thread: users a second of the processor, best of several.

python implicit_users.py FLEET.npz      (columns app_starts, apps, counts; app_vectors)
"""

import json
import os
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import implicit.cpu._als as als
import numpy as np
from scipy import sparse

data = np.load(sys.argv[1])
vectors = data["app_vectors"].astype(np.float32)
users = sparse.csr_matrix(
    (data["counts"].astype(np.float32), data["apps"], data["app_starts"]),
    shape=(len(data["app_starts"]) - 1, len(vectors)),
)
solved = np.zeros((users.shape[0], vectors.shape[1]), np.float32)
gram = vectors.T @ vectors
best = 1e9
for _ in range(7):
    start = time.process_time()
    als._least_squares(gram, users.indptr, users.indices, users.data, solved, vectors, 0.3, 1)
    best = min(best, time.process_time() - start)
print(json.dumps({"users_per_second": users.shape[0] / best}))
