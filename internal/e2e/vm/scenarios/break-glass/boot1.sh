within 120 held 1
throughout 15 held 1
touch /etc/nodegate/disabled
within 60 started 1
accepted 1
rm /etc/nodegate/disabled
without_program 2
touch /etc/nodegate/disabled
