# Runs one program on another machine for a hub, in POSIX sh. It comes over the connection, as does all that it reads:
# first the launch's id and two times, then lines that say what to run, then the program's own input. In those lines
# backslashes are doubled and newlines are `\n`. `printf` is a builtin where sh is dash, bash, zsh or busybox, so no
# value is an argument of a process.
#
# It ends everything when the program ends or when its input does, which is also what a lost connection looks like.

IFS= read -r teamster_id && IFS= read -r teamster_wait_s && IFS= read -r teamster_term_s || exit 1
teamster_dir=/tmp/teamster-launch-$teamster_id

# Whether all that we start is in a process group of ours, as sshd makes one.
if read -r _ _ _ _ teamster_group _ 2>/dev/null </proc/$$/stat; then :; else
  teamster_group=$(ps -o pgid= -p $$ 2>/dev/null)
fi
teamster_group=${teamster_group##* }

# Leaves nothing: what has the launch's mark (where there is /proc), then the group, ourselves included.
teamster_end() {
  trap "" TERM PIPE HUP
  # Before the program is gone, so that its end tells of this.
  rm -rf "$teamster_dir"
  teamster_n=0
  while [ "$teamster_n" -lt 50 ]; do
    teamster_n=$((teamster_n + 1))
    teamster_left=$(grep -ls "TEAMSTER_REMOTE=$teamster_id" /proc/[0-9]*/environ 2>/dev/null)
    [ -n "$teamster_left" ] || break
    for teamster_one in $teamster_left; do
      teamster_one=${teamster_one#/proc/}
      kill -KILL "${teamster_one%/environ}" 2>/dev/null
    done
  done
  rm -rf "$teamster_dir"
  [ "$teamster_group" = "$$" ] && kill -KILL 0
  exit 1
}

teamster_no() {
  printf "teamster-remote no %s\n" "$1"
  exit 97
}

# Reads what to run, and becomes it.
teamster_run() {
  PATH=$PATH:$HOME/.local/bin:$HOME/bin:/usr/local/bin
  TEAMSTER_REMOTE=$teamster_id
  export PATH TEAMSTER_REMOTE
  unset CDPATH
  set --
  while :; do
    IFS= read -r teamster_line || teamster_no "the connection ended"
    teamster_value=$(printf %b. "${teamster_line#??}")
    teamster_value=${teamster_value%.}
    case $teamster_line in
      "d "*)
        case $teamster_value in
          "~") teamster_at=$HOME ;;
          "~/"*) teamster_at=$HOME/${teamster_value#??} ;;
          *) teamster_at=$teamster_value ;;
        esac
        cd "$teamster_at" 2>/dev/null ||
          teamster_no "there is no directory $teamster_at there that can be entered"
        ;;
      "e "*) export "$teamster_value" ;;
      "n "*) teamster_file=$teamster_dir/$teamster_value ;;
      "f "*)
        (umask 077 && printf %s "$teamster_value" >"$teamster_file") 2>/dev/null ||
          teamster_no "$teamster_file cannot be written"
        ;;
      "p "*)
        teamster_program=$(command -v "$teamster_value")
        case $teamster_program in
          /*) ;;
          *) teamster_no "the program $teamster_value is not on the PATH there: $PATH" ;;
        esac
        ;;
      "a "*) set -- "$@" "$teamster_value" ;;
      .) break ;;
      *) teamster_no "a line was not understood" ;;
    esac
  done
  printf "teamster-remote at %s\n" "$(pwd -P)"
  exec "$teamster_program" "$@"
}

# What is there already is somebody's.
mkdir -m 700 "$teamster_dir" 2>/dev/null || teamster_no "$teamster_dir cannot be made"
trap : TERM
{
  trap : TERM
  exec 2>/dev/null
  cat
  # The program sees the end of its input now.
  exec >/dev/null
  sleep "$teamster_wait_s"
  [ "$teamster_group" = "$$" ] && kill -TERM 0
  sleep "$teamster_term_s"
  teamster_end
} | {
  trap : TERM
  (teamster_run)
  teamster_status=$?
  trap "" PIPE
  [ "$teamster_status" = 97 ] || echo "(the program there ended with status $teamster_status)" >&2
  teamster_end
}
