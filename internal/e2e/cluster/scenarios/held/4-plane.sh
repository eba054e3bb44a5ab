within 300 ready node1
