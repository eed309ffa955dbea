# What node-cache does to its node before it answers there, in the network of that node: an interface has its addresses,
# and the kernel does not track packets to and from them, so that the rules of kube-proxy for the clusterIP do not count.
#   nodelocal.sh ADDRESS...
set -eu
PATH=$PATH:/usr/sbin:/sbin

# node-cache makes a dummy, which not every kernel has. A bridge without ports holds addresses too.
ip link add nodelocaldns type dummy 2>/dev/null || ip link add nodelocaldns type bridge
ip link set nodelocaldns up
for address in "$@"; do
    ip address add "$address/32" dev nodelocaldns
    for protocol in tcp udp; do
        to="--protocol $protocol --destination $address --dport 53"
        from="--protocol $protocol --source $address --sport 53"
        # Deliberately split into words.
        # shellcheck disable=SC2086
        for rule in "raw --insert PREROUTING $to --jump NOTRACK" "raw --insert OUTPUT $to --jump NOTRACK" \
            "raw --insert OUTPUT $from --jump NOTRACK" "filter --insert INPUT $to --jump ACCEPT" \
            "filter --insert OUTPUT $from --jump ACCEPT"; do
            iptables --wait --table $rule
        done
    done
done
