"""Programs spread over devices: replicas, tensor parts, pipeline stages and microbatches."""
