"""What was measured, one JSON file per table: written by ``leakgauge papers run … --record``, read by the listing."""
