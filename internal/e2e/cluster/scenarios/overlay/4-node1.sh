[ "$(sent ip_summed=3)" -gt 0 ] || die "no packet left through flannel.1 without a checksum: $(sent) in all"
echo "without nodegate: $(sent ip_summed=3) of $(sent) packets left flannel.1 with their checksums to be computed by it"
/opt/nodegate install --policy /opt/overlay.hcl
