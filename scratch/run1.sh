export PYTHONPATH=. PYTHONUNBUFFERED=1 NCCL_NVLS_ENABLE=0
C="timeout 100 python3 -m collbench sweep --timeout 3 --repeats 3 --color never"
s() { n=$1; shift; echo "== $n"; /usr/bin/time -f "%es" $C "$@" --csv $OUT/$n.csv > /tmp/$n.txt 2>&1 || tail -3 /tmp/$n.txt; sed -n '/best/,$p' /tmp/$n.txt | cut -c1-150; }
s a --op allreduce --algo oneshot --proto ll --channels 1,4,8,16,32 --threads 64,128,256,512 --unroll 1,2,4 --sizes 8,1K,8K,32K,64K,128K --backend cuda,nccl
s b --op allreduce --algo oneshot --proto ll128 --channels 8,16,24,32 --threads 128,256,512 --sizes 32K,64K,128K,256K,512K --backend cuda,nccl
s c --op allreduce --algo twoshot --proto ll,ll128 --channels 8,16,32,64 --threads 128,256,512 --unroll 1,2 --sizes 64K,128K,256K,512K,1M --backend cuda,nccl
s d --op allreduce --algo ring --proto ll128 --channels 8,16,24,32,48,64 --threads 128,256,384 --sizes 256K,512K,1M,2M,4M,8M,16M --backend cuda,nccl
s e --op allreduce --algo ring,twoshot --proto simple --channels 16,24,32,64,128 --slices 1,2 --sizes 4M,8M,16M,64M,256M,1G --backend cuda,nccl
