within 400 ready node1
echo "power-on to Ready, joining, the first boot of the image: $(since_power_on node1)"
run web node1
within 200 restarted web 0
keep boot boot_of node1
