within 400 ready_again node1
echo "power-on to Ready, joined before, without nodegate: $(since_power_on node1)"
within 240 restarted web 2
