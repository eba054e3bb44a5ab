within 400 ready node1
echo "power-on to Ready, joining, without nodegate: $(since_power_on node1)"
