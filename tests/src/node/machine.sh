# Process 1 of the machine that is the node: a container runtime, kubelet and kube-proxy. Run below
# `unshare --pid --fork --kill-child --mount-proc`, so that all of it, down to the last container, ends with it.
#   machine.sh DIRECTORY IMAGES KUBELET KUBE-PROXY [FLAG OF KUBELET]...
set -eu
directory=$1 images=$2 kubelet=$3 kube_proxy=$4
shift 4
PATH=$PATH:/usr/sbin:/sbin
cd "$directory"

# What these programs write outside of the directory is gone with this mount namespace.
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /run
mkdir /run/netns
# kubelet sets these for the whole machine unless they are so already: here they look as if they were.
pretend() {
    echo "$2" >"sysctl-$1"
    [ ! -e "/proc/sys/$(echo "$1" | tr . /)" ] || mount --bind "sysctl-$1" "/proc/sys/$(echo "$1" | tr . /)"
}
pretend vm.overcommit_memory 1
pretend vm.panic_on_oom 0
pretend kernel.panic 10
pretend kernel.panic_on_oops 1
pretend kernel.keys.root_maxkeys 1000000
pretend kernel.keys.root_maxbytes 25000000

containerd --config containerd.toml >containerd.log 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.05; done
for image in "$images"/*.image.tar; do
    # The image of a release has no name of its own: pods name it by its digest.
    case $image in
        *.release.image.tar) name="--base-name clusterdns.test/clusterdns --digests" ;;
        *) name= ;;
    esac
    # shellcheck disable=SC2086
    ctr --namespace k8s.io images import $name "$image"
done
"$kubelet" --config=kubelet.yaml --kubeconfig=kubelet.kubeconfig "$@" >kubelet.log 2>&1 &
"$kube_proxy" --config=kube-proxy.yaml >kube-proxy.log 2>&1 &
echo "all started"
# Also takes leave of the processes of containers whose parents are gone.
while :; do wait; sleep 1; done
