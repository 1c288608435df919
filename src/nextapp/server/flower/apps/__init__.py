"""What Flower's own processes import: the coordinator's ServerApp and the gateways' ClientApp."""
