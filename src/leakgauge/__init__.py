"""leakgauge: how much of your clients' private data can be read back out of the updates they send?"""
