# fish completion of corral
function __corral_complete
    set -l before (commandline -opc)
    set -e before[1]
    set -l current (commandline -ct)
    set -l lines (command corral complete fish -- $before "$current" 2>/dev/null)
    set -l kind $lines[1]
    set -e lines[1]
    switch "$kind"
        case files
            __fish_complete_path "$current"
        case folders
            __fish_complete_directories "$current" ''
        case '*'
            for line in $lines
                printf '%s\n' $line
            end
    end
end
complete -c corral -f -a '(__corral_complete)'
