export PYTHONPATH=. PYTHONUNBUFFERED=1 NCCL_NVLS_ENABLE=0
C="timeout 100 python3 -m collbench sweep --timeout 3 --repeats 3 --color never"
s() { n=$1; shift; echo "== $n"; /usr/bin/time -f "%es" $C "$@" --csv $OUT/$n.csv > /tmp/$n.txt 2>&1 || tail -3 /tmp/$n.txt; sed -n '/best/,$p' /tmp/$n.txt | cut -c1-150; }
s a --op allreduce --algo oneshot --proto ll,ll128 --channels 1,8,16,24 --threads 64,128,256,512 --sizes 8,1K,8K,32K,64K,128K --backend cuda,nccl
s ag --op allgather,reducescatter,alltoall --proto ll,ll128 --channels 1,4,8,16,24,48 --threads 128,256,512 --sizes 64,4K,64K,128K,256K,1M,4M --backend cuda,nccl
s agl --op allgather,reducescatter,alltoall --proto simple --channels 16,32,64,128 --slices 1,2 --sizes 1M,4M,16M,64M,256M,1G --backend cuda,nccl
s bc --op broadcast,reduce --proto ll,ll128 --channels 1,8,16,24,48 --sizes 64,4K,64K,128K,256K,1M,4M --backend cuda,nccl
