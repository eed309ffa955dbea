# The network of several nodes, in the namespace that this runs in: a switch, which the control plane is on too, and a
# namespace for each node. Dual stack; pods of a node are reached by a route to it, without an overlay.
#   network.sh switch
#   network.sh node NUMBER
set -eu
PATH=$PATH:/usr/sbin:/sbin

# Pods of nodes that are not there yet: nothing answers.
route_to_pods() {
    $1 -4 route add "10.244.$2.0/24" via "192.0.2.1$2"
    $1 -6 route add "fd00:244:$2::/64" via "fd00:192::1$2"
}

case $1 in
switch)
    ip link add switch type bridge
    ip -4 address add 192.0.2.1/24 dev switch
    ip -6 address add fd00:192::1/64 dev switch nodad
    ip link set switch up
    # A switch has no firewall.
    for family in iptables ip6tables; do
        flag=/proc/sys/net/bridge/bridge-nf-call-$family
        [ ! -e "$flag" ] || echo 0 >"$flag"
    done
    for number in 1 2 3 4; do route_to_pods ip "$number"; done
    ;;
node)
    name=node-$2
    ip netns add "$name"
    ip link add "to-$name" type veth peer name eth0 netns "$name"
    ip link set "to-$name" master switch up
    ip -n "$name" link set lo up
    ip -n "$name" -4 address add "192.0.2.1$2/24" dev eth0
    ip -n "$name" -6 address add "fd00:192::1$2/64" dev eth0 nodad
    ip -n "$name" link set eth0 up
    # For what the node itself asks of Services: an address without a route is refused before kube-proxy's rules see it.
    ip -n "$name" -4 route add default via 192.0.2.1
    ip -n "$name" -6 route add default via fd00:192::1
    for other in 1 2 3 4; do [ "$other" = "$2" ] || route_to_pods "ip -n $name" "$other"; done
    nsenter --net="/run/netns/$name" sh -c '
        echo 1 >/proc/sys/net/ipv4/ip_forward
        echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'
    ;;
esac
