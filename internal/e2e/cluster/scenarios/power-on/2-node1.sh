# It joins once more, without nodegate, and then with it, in boots that are otherwise alike.
forget_cluster
