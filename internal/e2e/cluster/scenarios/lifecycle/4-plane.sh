within 400 ready_again node1
echo "power-on to Ready, joined before, with nodegate: $(since_power_on node1)"
within 240 restarted web 1
keep boot boot_of node1
keep web container web
