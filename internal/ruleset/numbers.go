package ruleset

// protocolName returns the name of a transport protocol. Programs print its number if they cannot read /etc/protocols, or
// with -n.
func protocolName(protocol string) string {
	switch protocol {
	case "6":
		return "tcp"
	case "17":
		return "udp"
	case "132":
		return "sctp"
	}
	return protocol
}

// portNumber returns the number of a port that a program may print by its name in /etc/services.
func portNumber(port string) string {
	if port == "" || port[0] >= '0' && port[0] <= '9' {
		return port
	}
	if number := portNames[port]; number != "" {
		return number
	}
	return port
}

// portNames holds the names of /etc/services that Services usually have. It is read-only.
var portNames = map[string]string{
	"ftp": "21", "ssh": "22", "telnet": "23", "smtp": "25", "domain": "53", "http": "80", "kerberos": "88", "pop3": "110", "sunrpc": "111",
	"ntp": "123", "imap2": "143", "snmp": "161", "snmp-trap": "162", "bgp": "179", "ldap": "389", "https": "443", "submissions": "465",
	"syslog": "514", "submission": "587", "ldaps": "636", "domain-s": "853", "rsync": "873", "imaps": "993", "pop3s": "995", "socks": "1080",
	"openvpn": "1194", "ms-sql-s": "1433", "radius": "1812", "mqtt": "1883", "nfs": "2049", "mysql": "3306", "ms-wbt-server": "3389",
	"iscsi-target": "3260", "sip": "5060", "sip-tls": "5061", "xmpp-client": "5222", "postgresql": "5432", "amqps": "5671", "amqp": "5672",
	"redis": "6379", "http-alt": "8080", "secure-mqtt": "8883", "git": "9418", "zabbix-agent": "10050", "zabbix-trapper": "10051",
}
