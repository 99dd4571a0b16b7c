# Waits for the end of the parent, then stops the process that the parent left running and
# removes the temporary folder.
#
# $1 is the run folder, $2 the data folder. Standard input is a pipe whose other end only
# the parent holds. The parent writes the id of each process that it starts, one per line.
# The pipe closes when the parent ends for any reason.
trap '' HUP INT TERM
run=$1
data=$2
pid=
while read -r line; do pid=$line; done

# The system may have reused the id. Only a process with the data folder in its command
# line is the server. A zombie has no command line.
ours() {
	[ -n "$pid" ] || return 1
	if [ -d /proc/self ]; then
		tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qxF -e "$data"
	else
		ps -ww -o args= -p "$pid" | grep -qF -e "$data"
	fi
} 2>/dev/null

tries=0
while ours && [ "$tries" -lt 300 ]; do
	case $tries in
	0) kill -s INT "$pid" ;;
	200) kill -s QUIT "$pid" ;;
	250) kill -s KILL "$pid" ;;
	esac
	tries=$((tries + 1))
	sleep 0.1
done

# A removal can fail while a process still writes into the folder.
tries=0
until rm -rf -- "$run" || [ "$tries" -ge 100 ]; do
	tries=$((tries + 1))
	sleep 0.1
done 2>/dev/null
