. /opt/vm/service.sh
first_start
saw 1
make_service
asks $service_address || die "the Service does not answer with nodegate"
echo "answered"
