"""Speed: our solver against one-image-at-a-time loops, ``python -m benchmarks`` (``make bench``).

Three engines solve the same problems with the same objective and the same optimiser: our batched solver, the loop
as the peers write it, and the same loop differentiating only with respect to the image. They take turns in one
process on one thread under one allocator; every ratio is between neighbours in time.
"""
