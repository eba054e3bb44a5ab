within 400 ready node1
