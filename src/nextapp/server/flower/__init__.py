"""Many regions: gateways as Flower SuperNodes, the coordinator as a Flower ServerApp.

Flower carries messages between machines and nothing else: the ClientApp hands a round's broadcast
to the vault of the gateway beside it and answers with that vault's tally; the ServerApp gives the
tallies to the same `Coordinator` that the embedded server uses. ``apps`` is what Flower's processes
import; everything else here runs without Flower being imported.
"""
