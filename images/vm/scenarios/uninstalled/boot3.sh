first_start
saw 1
/opt/nodegate uninstall
