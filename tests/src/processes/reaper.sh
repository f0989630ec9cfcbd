# Outlives the process that holds our standard input, and ends what that process could not end itself.
# Lines of input: `guard GROUP`, `release GROUP` (process groups), `remove FOLDER`. The end of the input is the end of the process.
groups=' '
folders=''
while IFS=' ' read -r verb what; do
    case $verb in
    guard) groups="$groups$what " ;;
    release) groups="${groups%% "$what" *} ${groups#* "$what" }" ;;
    remove) folders="$folders$what
" ;;
    esac
done
for group in $groups; do
    kill -s KILL -- "-$group"
done
printf '%s' "$folders" | while IFS= read -r folder; do
    # A process that was just killed may still be on its way out, and write.
    rm -rf -- "$folder" || { sleep 1; rm -rf -- "$folder"; }
done
