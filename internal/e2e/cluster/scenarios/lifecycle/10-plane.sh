untouched node1 web
