export PYTHONPATH=. PYTHONUNBUFFERED=1 NCCL_NVLS_ENABLE=0
C="timeout 100 python3 -m collbench sweep --timeout 3 --repeats 3 --color never"
s() { n=$1; shift; echo "== $n"; /usr/bin/time -f "%es" $C "$@" --csv $OUT/$n.csv > /tmp/$n.txt 2>&1 || tail -3 /tmp/$n.txt; sed -n '/best/,$p' /tmp/$n.txt | cut -c1-150; }
s bcl --op broadcast,reduce --algo chain,tree,twoshot --proto simple --channels 16,32,64,128 --chunk 16K,32K,64K,256K,512K --direct on,off --sizes 1M,4M,16M,64M,256M,1G --backend cuda,nccl
s sr --op sendrecv,gather,scatter --algo direct --proto ll,ll128 --channels 1,8,16,24,48 --sizes 64,4K,64K,256K,1M,4M --backend cuda,nccl
s srl --op sendrecv,gather,scatter --algo direct --proto simple --channels 16,32,64,128 --slices 1,2 --sizes 1M,4M,16M,64M,256M,1G --backend cuda,nccl
s bcs --op broadcast,reduce --algo chain --proto ll128 --channels 16,24,48 --chunk 4K,8K,15K,30K,60K --sizes 256K,1M,2M,4M,8M --backend cuda,nccl
