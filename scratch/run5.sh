export PYTHONUNBUFFERED=1 NCCL_NVLS_ENABLE=0
for v in 0 1 2 3; do rm -rf /tmp/v$v; cp -r . /tmp/v$v; done
sed -i 's/if (step.sources == 1 \&\& step.source\[0\].kind != SLOT) w = after_load.*$/;/' /tmp/v1/collbench/device/ll.cu /tmp/v1/collbench/device/ll128.cu
cp /tmp/v1/collbench/device/*.cu /tmp/v2/collbench/device/
sed -i 's/bool given_up = false;.*/bool given_up = load_relaxed(a.abort);/' /tmp/v2/collbench/device/flagged.cuh
sed -i 's/bool given_up = false;.*/bool given_up = load_relaxed(a.abort);/' /tmp/v3/collbench/device/flagged.cuh
for k in 1 2; do for v in 0 1 2 3; do cd /tmp/v$v; echo "== v$v"; PYTHONPATH=. timeout 60 python3 -m collbench sweep --repeats 3 --op allreduce --algo oneshot --proto ll --sizes 8,1K,8K,32K,64K --backend cuda,nccl 2>&1 | grep oneshot | grep -v best | cut -c1-70; done; done
cd /tmp/v0; echo == soakmpi; PYTHONPATH=. timeout 60 mpirun --allow-run-as-root --oversubscribe -n 4 python3 -m collbench sweep --timeout 3 --op all --sizes 64K,4M --soak 10 --backend cuda 2>&1 | head -20
