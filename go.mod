module nodegate

go 1.26
