export PYTHONPATH=. PYTHONUNBUFFERED=1 NCCL_NVLS_ENABLE=0
P="python3 -m collbench sweep --timeout 3 --color never"
s() { n=$1; shift; echo "== $n"; /usr/bin/time -f "%es" timeout 60 $P --repeats 2 "$@" --csv $OUT/$n.csv > /tmp/$n.txt 2>&1 || tail -3 /tmp/$n.txt; sed -n '/best/,$p' /tmp/$n.txt | cut -c1-120; }
s bcl --op broadcast,reduce --algo chain --proto simple --channels 64,128 --chunk 16K,32K,64K,128K --direct on,off --sizes 16M,64M,256M,1G --backend cuda,nccl
s bcs --op broadcast,reduce --algo chain --proto ll128 --channels 24,48 --chunk 8K,15K,30K --sizes 1M,2M,4M,8M --backend cuda
s dir --op allgather,reducescatter,alltoall,sendrecv --algo direct --proto ll128 --channels 16,24,48 --threads 256,384 --sizes 256K,1M,2M,4M --backend cuda,nccl
s sr --op sendrecv --algo direct --proto ll,simple --sizes 64,4K,64K,128K,256K,1M,4M,16M,64M,256M,1G --backend cuda,nccl
s auto --op allreduce,alltoall --algo auto -b 8 -e 1G -f 4 --backend cuda,nccl
echo == soak; timeout 60 $P --op all --algo all --proto all --sizes 64K,4M --soak 15 --backend cuda 2>&1 | tail -5
echo == soakmpi; timeout 60 mpirun --allow-run-as-root --oversubscribe -n 4 $P --op all --sizes 64K,4M --soak 15 --backend cuda 2>&1 | tail -5
