#!/bin/bash
# Groups of programs that Open MPI, Slurm, MPICH and torchrun's variables start: by PMIx, where there is no rdmad, and at one; by any
# transport and by TCP; two groups, children, a rank that dies, one that never comes, launchers in launchers, and MPI in the same program.
# Slurm is one of the test's own, on this machine.
# shellcheck source=tests/lib.sh disable=SC2016 # what others expand
. "$(dirname "$0")/../lib.sh"
PATH=$PATH:/usr/sbin # of the daemons
unset RDMA_MEETING RDMA_GROUP RDMA_RANK RDMA_SIZE RANK WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID JOB_COMPLETION_INDEX
unset "${!OMPI_@}" "${!PMIX_@}" "${!PMI_@}" "${!SLURM_@}"
program=$builddir/tests/peer/launched
[[ -x $program ]] || { echo "$test_name: $program was not built"; exit 77; }
pmix=$(grep -c '^#define HAVE_PMIX 1' "$builddir/config.h") # else there is none in the library
# libpmix and MPI keep memory to their end; threads of theirs are not watched.
printf 'leak:%s\n' libpmix libopen-pal libopen-rte libmpi libevent libhwloc mca_ libfabric libucs >"$dir/leaks"
printf 'called_from_lib:%s\n' libpmix.so libevent_core libevent_pthreads >"$dir/threads"
export LSAN_OPTIONS="suppressions=$dir/leaks:print_suppressions=0" TSAN_OPTIONS="suppressions=$dir/threads ${TSAN_OPTIONS-}"
export TMPDIR=$dir
ran=() missing=()

# --- launchers
open_mpi=(mpirun --oversubscribe)
[[ $(id -u) != 0 ]] || open_mpi+=(--allow-run-as-root)

# start_slurm: 1: there is none, and $why says why.
start_slurm() {
	local tool host user
	for tool in slurmctld slurmd srun sinfo munged python3; do
		command -v "$tool" >/dev/null || { why="$tool is missing"; return 1; }
	done
	host=$(hostname -s) user=$(id -un)
	chmod 755 "$dir"
	head -c 1024 /dev/urandom >"$dir/munge.key"
	chmod 600 "$dir/munge.key"
	mkdir "$dir/state" "$dir/spool"
	munged --foreground --force --num-threads=2 --socket="$dir/munge" --key-file="$dir/munge.key" --pid-file="$dir/munge.pid" \
		--log-file="$dir/munge.log" --seed-file="$dir/munge.seed" >"$dir/munge.log" 2>&1 &
	clients+=("$!")
	cat >"$dir/slurm.conf" <<-CONF
		ClusterName=test
		SlurmctldHost=$host(127.0.0.1)
		SlurmctldPort=$(free_ports 1)
		SlurmdPort=$(free_ports 1)
		SlurmUser=$user
		SlurmdUser=$user
		AuthType=auth/munge
		AuthInfo=socket=$dir/munge
		CredType=cred/munge
		StateSaveLocation=$dir/state
		SlurmdSpoolDir=$dir/spool
		SlurmctldPidFile=$dir/slurmctld.pid
		SlurmdPidFile=$dir/slurmd.pid
		SlurmctldLogFile=$dir/slurmctld.log
		SlurmdLogFile=$dir/slurmd.log
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		JobAcctGatherType=jobacct_gather/none
		SchedulerType=sched/builtin
		SelectType=select/linear
		SlurmdParameters=config_overrides
		MpiDefault=none
		ReturnToService=2
		NodeName=$host NodeAddr=127.0.0.1 CPUs=64
		PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE:16 State=UP
	CONF
	export SLURM_CONF=$dir/slurm.conf
	wait_for "munged" test -S "$dir/munge"
	slurmctld -D -i >"$dir/slurmctld.out" 2>&1 &
	clients+=("$!")
	slurmd -D >"$dir/slurmd.out" 2>&1 &
	clients+=("$!")
	for _ in $(seq 600); do
		# A node that is idle may still refuse its first steps on a busy machine.
		[[ $(timeout 10 sinfo -h -o %t 2>/dev/null) != idle ]] || ! timeout 60 srun -n 1 true 2>/dev/null || return 0
		ended "${clients[-1]}" || ended "${clients[-2]}" || { sleep 0.1; continue; }
		break
	done
	why="no node of Slurm is idle: $(tail -qn 1 "$dir/slurmctld.out" "$dir/slurmd.out" "$dir/slurmctld.log" "$dir/slurmd.log" 2>/dev/null | tail -n 1)"
	return 1
}

has_mpirun='' has_mpich='' has_slurm=''
if timeout 60 "${open_mpi[@]}" -n 1 true >"$dir/out" 2>&1; then has_mpirun=1; else missing+=("Open MPI: $(tail -n 1 "$dir/out")"); fi
if timeout 60 mpiexec.hydra -n 1 true >"$dir/out" 2>&1; then has_mpich=1; else missing+=("MPICH: $(tail -n 1 "$dir/out")"); fi
if start_slurm; then has_slurm=1; else missing+=("Slurm: $why"); fi
slurm_pmix=(srun --mpi=pmix) slurm=(srun --mpi=none)
[[ ! $has_slurm ]] || timeout 60 srun --mpi=list 2>&1 | grep -q pmix || missing+=("Slurm has no PMIx")

# --- ranks

# launch STATUS COMMAND...
launch() {
	local want=$1 got
	shift
	timeout 240 "$@" >"$dir/out" 2>"$dir/err" </dev/null
	got=$?
	[[ $want == "$got" || ($want == failure && $got != 0 && $got != 124) ]] || fail "exit status $got, not $want: $*"
}

# ranks N LAUNCHER TRANSPORT: what N ranks have said.
ranks() {
	local i
	for ((i = 0; i < $1; i++)); do
		grep -Eq "^rank $i of $1 by $2 over $3 in [0-9]+ ms$" "$dir/out" || fail "rank $i of $1 by $2 over $3 does not say so"
	done
	[[ $(grep -c '^rank ' "$dir/out") == "$1" ]] || fail "more than $1 ranks by $2"
}

# group LAUNCHER COMMAND...: all that a group can do.
group() {
	local launcher=$1
	shift
	launch 0 "$@" "$program"
	ranks 3 "$launcher" '(shm|rdma)'
	launch 0 "$@" "$program" tcp
	ranks 3 "$launcher" tcp
	ran+=("$launcher")
}

# group_by_pmix LAUNCHER COMMAND...
group_by_pmix() {
	group "$@"
	local launcher=$1
	shift
	launch 0 "$@" "$program" two fork
	ranks 3 "$launcher" '(shm|rdma)'
	launch 0 "$@" "$program" two fork tcp
	ranks 3 "$launcher" tcp
	launch failure "$@" "$program" crash # the launcher may end the others before they see it
}

# A rank that never comes, which takes two minutes: the rest goes on meanwhile.
late() {
	local name=$1
	shift
	timeout 240 "$@" "$program" late >"$dir/late.$name" 2>&1 </dev/null &
	clients+=("$!")
	lates+=("$!") late_names+=("$name")
}
lates=() late_names=()
if ((pmix)); then
	[[ ! $has_mpirun ]] || late mpirun "${open_mpi[@]}" -n 3
	[[ ! $has_slurm ]] || late srun "${slurm_pmix[@]}" -K -n 3
	[[ ! $has_mpirun ]] || group_by_pmix mpirun "${open_mpi[@]}" -n 3
	[[ ! $has_slurm ]] || group_by_pmix 'srun --mpi=pmix' "${slurm_pmix[@]}" -n 3
	# More than there are processors.
	[[ ! $has_mpirun ]] || { launch 0 "${open_mpi[@]}" -n 16 "$program" quiet && says '^rank 0 of 16 by mpirun'; }
	# No server of PMIx, and a library that is not there.
	nowhere=(env PMIX_RANK=0 PMIX_NAMESPACE=none OMPI_COMM_WORLD_SIZE=1)
	launch failure "${nowhere[@]}" RDMAD_HOST=unix:///none "$program"
	complains 'group "none": the rdmad is not reached'
else
	missing+=("PMIx, which the library was built without")
fi

# --- at an rdmad
configure
start_daemon
export RDMA_MEETING=unix://$dir/rdmad.sock
[[ ! $has_mpirun ]] || group mpirun "${open_mpi[@]}" -x RDMA_MEETING -n 3
[[ ! $has_slurm ]] || group srun "${slurm[@]}" -n 3
[[ ! $has_slurm ]] || group 'srun --mpi=pmix' "${slurm_pmix[@]}" -n 3
if [[ $has_slurm ]] && srun --mpi=list 2>&1 | grep -q pmi2; then
	launch 0 srun --mpi=pmi2 -n 3 "$program"
	ranks 3 srun '(shm|rdma)'
fi
if [[ $has_mpich ]]; then
	group mpiexec mpiexec.hydra -n 3 -genv RDMA_GROUP "run$$"
	launch failure mpiexec.hydra -n 3 "$program"
	complains 'mpiexec tells no name of the run: give all its ranks the same RDMA_GROUP'
	launch failure mpiexec.hydra -n 3 -genv RDMA_GROUP "run$$" "$program" crash
fi
# As torchrun does, without its interpreter.
cat >"$dir/torchrun" <<'SCRIPT'
#!/bin/bash
export WORLD_SIZE=$1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500
shift
for ((rank = 0; rank < WORLD_SIZE; rank++)); do
	RANK=$rank "$@" &
	ranks[rank]=$!
done
for ((rank = 0; rank < WORLD_SIZE; rank++)); do wait "${ranks[rank]}" || status=$?; done
exit "${status-0}"
SCRIPT
chmod +x "$dir/torchrun"
group torch "$dir/torchrun" 3
TORCHELASTIC_RUN_ID=run7 group torchrun "$dir/torchrun" 3

# Launchers in others: the inner one's ranks.
if [[ $has_slurm ]]; then
	launch 0 "${slurm[@]}" -n 1 env TORCHELASTIC_RUN_ID=run8 "$dir/torchrun" 3 "$program"
	ranks 3 torchrun '(shm|rdma)'
	[[ ! $has_mpich ]] || { launch 0 "${slurm_pmix[@]}" -n 1 mpiexec.hydra -launcher fork -n 3 -genv RDMA_GROUP "in$$" "$program" && ranks 3 mpiexec '(shm|rdma)'; }
fi
unset RDMA_MEETING
if [[ $has_slurm && $has_mpirun && $pmix != 0 ]]; then
	for mpi in none pmi2 pmix; do
		launch 0 srun --mpi="$mpi" -n 1 "${open_mpi[@]}" --host localhost:3 --mca plm isolated --mca ras ^slurm -n 3 "$program"
		ranks 3 mpirun '(shm|rdma)'
	done
fi

# --- MPI in the same program
cat >"$dir/mpi.c" <<'PROGRAM'
#include <mpi.h>
#include <rdma_lib.h>

int main(int argc, char **argv)
{
	int rank, sum = 0, one = 1;
	rdma_context *ctx;
	rdma_group *group;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	ctx = rdma_init(NULL, 0, 0, false);
	group = ctx ? rdma_group_run(ctx) : NULL;
	if (!group || rdma_group_rank(group) != rank || rdma_barrier(group) != 0) {
		fprintf(stderr, "%s\n", rdma_get_error());
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
	rdma_group_free(group);
	if (argc > 1)
		MPI_Finalize();
	rdma_cleanup(ctx);
	if (argc > 1)
		return 0;
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Finalize();
	return sum != 3;
}
PROGRAM
compile=$(sed -n 's/^CC = //p' "$builddir/Makefile")
sanitizers=$(sed -n 's/^SANITIZER_CFLAGS = //p' "$builddir/Makefile")
if [[ $has_mpirun && $pmix != 0 && -e $builddir/.libs/librdma_lib.so && ! $sanitizers ]] && mpi_flags=$(mpicc.openmpi --showme 2>/dev/null); then
	# shellcheck disable=SC2086 # words
	$compile -I"$srcdir/src/include" "$dir/mpi.c" -o "$dir/mpi" -L"$builddir/.libs" -lrdma_lib ${mpi_flags#* } >"$dir/out" 2>"$dir/err" ||
		fail "the program with MPI does not compile"
	export LD_LIBRARY_PATH="$builddir/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
	launch 0 "${open_mpi[@]}" -n 3 "$dir/mpi"
	launch 0 "${open_mpi[@]}" -n 3 "$dir/mpi" after
	ran+=("beside MPI")
else
	missing+=("a program with MPI, which takes mpicc.openmpi and a build without sanitizers")
fi

# --- those that wait
for i in "${!lates[@]}"; do
	wait_for "the end of ${late_names[i]}, a rank of which never comes" ended "${lates[i]}"
	wait "${lates[i]}" && fail "${late_names[i]} succeeds without a rank"
	grep -Eq 'launched: group: rank 1 of 3 did not come within 120 s \(PMIx, job ' "$dir/late.${late_names[i]}" ||
		fail "${late_names[i]} does not say who is missing: $(head -n 3 "$dir/late.${late_names[i]}")"
done

printf '%s: by %s\n' "$test_name" "$(printf '%s, ' "${ran[@]}" | sed 's/, $//')"
[[ ${#missing[@]} == 0 ]] || printf "$test_name: not here: %s\n" "${missing[@]}"
conclude
