# The far side of file transfer. Runs on bash 3.2 and newer; names are data: they arrive on standard input or in a file,
# never in a command line of ours. Lists for xargs end each name with NUL; lists that bash itself reads have one escaped
# field a line (\\ and \n), since bash reads those in blocks and everything else a byte at a time.
export LC_ALL=C TZ=UTC0
unset -v BASH_ENV CDPATH PERL5OPT PERL5LIB PERLIO TAR_OPTIONS GZIP ZSTD_CLEVEL ZSTD_NBTHREADS POSIXLY_CORRECT
set -f
sep=$'\037' # between the fields of the plan

# arg reads the next argument.
arg() { IFS= read -r -d '' "$1"; }
have() { type -P "$1" >/dev/null 2>&1; }
fail() { printf 'failed %s\n' "$*"; exit 1; }
# unescape undoes what the sender did to a field, in place.
unescape() { case ${!1} in *\\*) printf -v "$1" %b "${!1}" ;; esac; }

if have sha256sum; then hasher=(sha256sum)
elif have shasum; then hasher=(shasum -a 256)
elif have sha256; then hasher=(sha256 -r)
elif have openssl; then hasher=(openssl dgst -sha256 -r)
else hasher=(); fi

# What stat prints for a path: mode in hexadecimal with the type, size, mtime, inode, exact mtime, exact ctime, name. A
# name that find gave never holds two slashes in a row, so they end it.
if stat -c %f . >/dev/null 2>&1; then stats=(stat -c '%f|%s|%Y|%i|%y|%z|%n//')
elif stat -f %Xp . >/dev/null 2>&1; then stats=(stat -f '%Xp|%z|%m|%i|%Fm|%Fc|%N//')
else stats=(); fi

hello() {
	local t tools=
	for t in tar zstd gzip find xargs; do have $t && tools="$tools $t"; done
	((${#hasher[@]})) && tools="$tools hash"
	((${#stats[@]})) && tools="$tools stat"
	printf '\n%s%s\n' "$token" "$tools"
}

# state says what is at a path: - nothing, d a directory, o something odd, u unreadable, l and the target of a link, f a
# regular file (its hash comes behind).
state() {
	if [[ -L $1 ]]; then
		state=$(readlink "$1" && printf x)
		state=l${state%$'\nx'}
	elif [[ ! -e $1 ]]; then state=-
	elif [[ -d $1 ]]; then state=d
	elif [[ ! -f $1 ]]; then state=o
	elif [[ ! -r $1 ]]; then state=u
	else state=f; fi
}

# hash_one hashes a file whose name a line of the hasher's output could not hold.
hash_one() {
	state=u
	local out
	out=$("${hasher[@]}" <"$1" 2>/dev/null) && state=f${out:0:64}
}

# scan: arguments are a directory and how: "tree" lists all below it, "list" looks at the
# names on standard input, "trees" at all below them too. With a book, its generation comes first and "book" looks at the names that it lists; with a probe, that file's content.
scan() {
	local root how book probe generation='' proof=''
	arg root; arg how; arg book; arg probe
	hello
	if [[ -n $probe && -r $probe ]]; then IFS= read -r proof <"$probe"; fi
	if [[ -n $book && -r $book ]]; then IFS= read -r generation <"$book"; fi
	printf 'generation %s\nproof %s\n' "${generation:0:64}" "${proof:0:64}"
	if ! cd -P "$root" 2>/dev/null; then
		if [[ -d $root ]]; then printf 'denied\n'
		elif [[ -e $root ]]; then printf 'other\n'
		else printf 'none\n'; fi
		return
	fi
	printf 'items\n'
	case $how in
	tree) find . -name '.elsewhere-sync-*' -prune -o -print0 | xargs -0 "${stats[@]}" ;;
	trees)
		local name
		local -a roots
		roots=()
		while IFS= read -r -d '' name; do [[ ! -e $name ]] || roots[${#roots[@]}]=$name; done
		((${#roots[@]} == 0)) || find -H "${roots[@]}" -name '.elsewhere-sync-*' -prune -o -print0 | xargs -0 "${stats[@]}" ;;
	list) xargs -0 -n 1000 "${stats[@]}" 2>/dev/null ;; # while the rest of the names comes
	book) if [[ -n $generation ]]; then { IFS= read -r generation; xargs -0 "${stats[@]}"; } <"$book" 2>/dev/null; fi ;;
	esac
	printf '//end//\n'
}

# hash: arguments are a directory, the number of odd names and these; the other names are on standard input. Links among
# the odd ones are read, files hashed: one escaped line each.
hash() {
	local root count name
	local -a odd
	odd=()
	arg root; arg count
	while ((count-- > 0)); do arg name; odd[${#odd[@]}]=$name; done
	hello
	cd -P "$root" || fail "$root: cannot be entered"
	if ((${#odd[@]})); then
		for name in "${odd[@]}"; do
			state "$name"
			[[ $state != f ]] || hash_one "$name"
			state=${state//\\/\\\\}
			printf '%s\n' "${state//$'\n'/\\n}"
		done
	fi
	printf 'hashes\n'
	xargs -0 "${hasher[@]}"
	printf 'end\n'
}

# fetch: arguments are a directory and a compression; NUL-ended names are on standard input. The answer is one tar
# archive or more, one behind the other.
fetch() {
	local root pack
	arg root; arg pack
	hello
	cd -P "$root" || fail "$root: cannot be entered"
	local -a flags
	flags=()
	case $(tar --version 2>/dev/null) in *GNU*) flags=(--sparse --no-recursion --no-unquote) ;; *bsdtar*) flags=(-n) ;; *) flags=(--no-recursion) ;; esac
	printf 'archive\n'
	# Files that vanish or cannot be read are told on standard error; the archive that ends well says that the rest is there.
	case $pack in
	zstd) xargs -0 tar -cf - "${flags[@]}" | zstd -q -1 -c ;;
	gzip) xargs -0 tar -cf - "${flags[@]}" | gzip -1 -c ;;
	*) xargs -0 tar -cf - "${flags[@]}" ;;
	esac
}

# talk only answers.
talk() {
	local line
	hello
	while IFS= read -r line; do printf 'pong\n'; done
}

# send: arguments are a directory, the name of the stage in it and the book's file. Then a talk, by lines: we say hello and
# whether a stage is there; "list" asks for the hashes in it, "ping" is answered; "go COMPRESSION"
# starts the archive, which fills the stage. Its last member is the plan, so that a plan is there only after all the rest.
send() {
	local root stage book line made=
	arg root; arg stage; arg book
	hello
	local was
	was=$(umask)
	if [[ ! -d $root ]]; then mkdir -p "$root" || fail "$root: cannot be made"; fi
	cd -P "$root" || fail "$root: cannot be entered"
	umask 077
	adopt
	while IFS= read -r line; do
		case $line in
		ping) printf 'pong\n' ;;
		list)
			rm -f "./$stage/plan" "./$stage/book"
			(cd "$stage" && find new part -type f -print0 2>/dev/null | xargs -0 "${hasher[@]}") </dev/null 2>/dev/null
			printf 'end\n' ;;
		'go '*) break ;;
		*) fail "cannot read $line" ;;
		esac
	done
	mkdir -p "./$stage/new" "./$stage/part" || fail "$root: cannot be written to"
	receive "${line#go }" || return
	commit
	if [[ -n $book && -f $stage/book ]]; then
		if mkdir -p "${book%/*}" && cp "$stage/book" "$book.new" && mv -f "$book.new" "$book"; then :; else printf 'bookless\n'; fi
	fi
	xargs -0 "${stats[@]}" <"$stage/paths" 2>/dev/null
	printf '//end//\n'
	rm -rf "./$stage"
}

# make_stage makes the stage. Its name is a random one, and so no part of the reason why it cannot be made.
make_stage() {
	local why
	why=$(mkdir "$stage" 2>&1) || fail "$root: cannot be written to: ${why##*: }"
}

# adopt makes a stage of our own out of what earlier attempts left. What an attempt whose link is dead may still write goes to
# its own stage, or to a file that is no longer in ours.
adopt() {
	local old found=no
	local -a olds
	set +f
	olds=("./$stage".*)
	set -f
	stage=$stage.${token:0:8}
	make_stage
	for old in "${olds[@]}"; do
		[[ -d $old && ! -L $old ]] || continue
		if [[ $found == no && -d $old/new ]] && mv "$old/new" "$stage/"; then
			found=yes
			mv "$old/part" "$stage/"
		fi
		rm -rf "$old"
	done
	printf 'stage %s\n' $found
}

# receive unpacks the archive on standard input into the stage.
receive() {
	local -a codes
	tarred=0
	case $1 in
	zstd) zstd -dcq | tar -xpof - -C "$stage"; codes=("${PIPESTATUS[@]}") ;;
	gzip) gzip -dc | tar -xpof - -C "$stage"; codes=("${PIPESTATUS[@]}") ;;
	*) tar -xpof - -C "$stage"; codes=($?) ;;
	esac
	case "${codes[*]}" in *[1-9]*) tarred=1 ;; esac
	if [[ -f $stage/plan && -f $stage/book ]] && read_plan; then
		survey
		return 0
	fi
	# What arrived stays for the next attempt, but where there is no room it would only be in the way.
	local free why=cut
	if free=$(df -Pk "$stage" 2>/dev/null); then
		free=${free##*$'\n'}
		set -- $free
		if [[ ${4:-1000} -lt 64 ]]; then
			why='cut full'
			rm -rf "./$stage"
		fi
	fi
	printf '%s\n' "$why"
	return 1
}

# read_plan reads the plan's lines into records; a plan that is not complete is none.
read_plan() {
	records=()
	if [[ $(type -t mapfile) == builtin ]]; then mapfile -t records <"$stage/plan"
	else
		local line
		while IFS= read -r line; do records[${#records[@]}]=$line; done <"$stage/plan"
	fi
	((${#records[@]} > 1)) || return
	[[ ${records[${#records[@]} - 1]} == "end$sep"* ]]
}

# planned takes a record of the plan apart: kind, name, expect, new, how.
planned() {
	local IFS=$sep
	local -a fields
	fields=(${records[$1]})
	kind=${fields[0]-} name=${fields[1]-} expect=${fields[2]-} new=${fields[3]-} how=${fields[4]-}
	unescape name; unescape expect; unescape new
}

# skip says that a record was not carried out, and why.
skip() { printf 'skip %s %s\n' "$1" "$2"; }

# whole tells whether a staged file that tar may have cut is whole: its hash is what was sent.
whole() {
	((tarred == 0)) && return
	[[ $new != f* ]] && return
	state=
	hash_one "$1"
	[[ $state == "$new" ]]
}

# assemble puts a file together from its parts: "size mode time count" in how, then "offset part" in each line from $1 on.
assemble() {
	local size mode stamp count offset part i ok=1 file=$stage/new/$name
	IFS=' ' read -r size mode stamp count <<<"$how"
	mkdir -p "${file%/*}" && : >"$file" || ok=0
	for ((i = $1; i < $1 + count; i++)); do
		offset=${records[i]% *} part=${records[i]#* }
		((ok)) && dd if="$stage/part/$part" of="$file" bs=4096 seek=$((offset / 4096)) conv=notrunc 2>/dev/null || ok=0
		rm -f "./$stage/part/$part"
	done
	((ok)) && dd if=/dev/null of="$file" bs=1 seek="$size" count=0 2>/dev/null || ok=0
	((ok)) && chmod "$mode" "$file" && touch -t "$stamp" "$file" || ok=0
	if ((!ok)); then rm -f "$file"; return 1; fi
}

# survey goes through the records that the plan's first line names: it puts together what came in parts, and hashes at once the
# plain files that stand where something is to go.
survey() {
	local kind name expect new how i
	for i in ${records[0]}; do
		planned "$i"
		if [[ $kind == parts ]] && ! assemble $((i + 1)); then tarred=1; fi
		case $expect in f*) ;; *) continue ;; esac
		case $name in *[\\$'\n\r']*) continue ;; esac
		state "./$name"
		[[ $state != f ]] || printf '%s\0' "./$name" >&4
	done 4>"$stage/hash"
	if [[ -s $stage/hash ]]; then xargs -0 "${hasher[@]}" <"$stage/hash" >"$stage/hashed" 2>/dev/null; else : >"$stage/hashed"; fi
}

# found sets $state to what is at a name now. A file's hash is the one that the survey found, unless there is none.
found() {
	state "./$1"
	[[ $state == f ]] || return
	case $1 in *[\\$'\n\r']*) hash_one "./$1"; return ;; esac
	while IFS= read -r hashed <&6; do
		if [[ ${hashed:66} == "./$1" || ${hashed:65} == "./$1" ]]; then
			state=f${hashed:0:64}
			return
		fi
	done
	hash_one "./$1"
}

# commit carries the plan out.
commit() {
	local state hashed dir='' several=0 perl=0
	local -a moves places numbers
	moves=() places=() numbers=()
	! have perl || perl=1
	carry 1 ${#records[@]} 6<"$stage/hashed"
	printf 'committed %d\n' $((${#records[@]} - 1))
}

# carry carries out the records from $1 on, up to $2. What goes into one directory is moved by one mv, and where there is perl
# all is renamed by one; a directory that is not there yet is moved whole, and the records of what is in it, whose number it
# tells, are passed over.
carry() {
	local index kind name expect new how parent
	for ((index = $1; index < $2; index++)); do
		planned $index
		case $name in */*) parent=${name%/*} ;; *) parent=. ;; esac
		case $kind in put | parts | tree) [[ $perl == 1 || $parent == "$dir" ]] || flush ;; *) flush ;; esac
		case $kind in
		tree | dir) directory ;;
		put) put ;;
		parts) put; index=$((index + ${how##* })) ;;
		remove) remove ;;
		end) ;;
		chmod) chmod "$how" "./$name" 2>/dev/null || skip $index 'its mode cannot be set' ;;
		*) skip $index "unknown: $kind" ;;
		esac
	done
	flush
}

# directory makes a directory. $how is its mode, and for a tree how many records are about what is in it.
directory() {
	if [[ -d ./$name && (! -L ./$name || $expect == follow) ]]; then return; fi
	if [[ -e ./$name || -L ./$name ]]; then
		if [[ $expect != '*' ]]; then skip $index 'something else is in its place'; return; fi
		rm -f "./$name"
	fi
	if [[ $kind == tree && -d $stage/new/$name ]] && ((tarred == 0)) && move; then
		index=$((index + ${how#* }))
		return
	fi
	make_directory
}

make_directory() {
	if (umask "$was"; mkdir -p "./$name"); then chmod "${how% *}" "./$name"; else skip $index 'the directory cannot be made'; fi
}

# move adds the record to what is moved to its directory next.
move() {
	if [[ $parent != "$dir" ]]; then
		if [[ ! -d ./$parent ]] && ! (umask "$was"; mkdir -p "./$parent"); then return 1; fi
		((${#moves[@]} == 0)) || several=1
		dir=$parent
	fi
	moves[${#moves[@]}]=./$stage/new/$name
	places[${#places[@]}]=./$name
	numbers[${#numbers[@]}]=$index
	if ((${#moves[@]} >= 500)); then flush; fi
}

# put moves a staged file or link to its place where that holds nothing, what is expected, or what is to go there.
put() {
	if [[ ! -e $stage/new/$name && ! -L $stage/new/$name ]] || ! whole "./$stage/new/$name"; then
		skip $index 'it did not arrive whole'
		return
	fi
	case $expect in
	'*' | '**')
		if [[ -d ./$name && ! -L ./$name ]]; then
			if [[ $expect == '*' ]]; then skip $index 'a directory is in its place'; return; fi
			rm -rf "./$name"
		fi ;;
	-) if [[ -e ./$name || -L ./$name ]]; then
			state "./$name"
			[[ $state != f ]] || hash_one "./$name"
			if [[ $state != "$new" ]]; then skip $index 'another file is in its place'; return; fi
		fi ;;
	*) found "$name"
		if [[ $state != "$expect" && $state != "$new" && $state != - ]]; then
			skip $index 'it was changed there'
			return
		fi ;;
	esac
	move || skip $index 'its directory cannot be made'
}

# flush moves what was gathered; where that fails, one by one to find out which. A tree that cannot be moved is made and filled
# file by file.
flush() {
	((${#moves[@]})) || return 0
	local i failed
	local -a from to which
	from=("${moves[@]}") to=("${places[@]}") which=("${numbers[@]}") failed=0
	if ((several)); then rename_all; else mv -f "${from[@]}" "./$dir/" 2>/dev/null; fi || failed=1
	moves=() places=() numbers=() dir='' several=0
	((failed)) || return 0
	for ((i = 0; i < ${#from[@]}; i++)); do
		[[ -e ${from[i]} || -L ${from[i]} ]] || continue
		mv -f "${from[i]}" "${to[i]%/*}/" 2>/dev/null || refused "${which[i]}"
	done
}

# rename_all renames each of from to its place in to.
rename_all() {
	for ((i = 0; i < ${#from[@]}; i++)); do printf '%s\0%s\0' "${from[i]}" "${to[i]}"; done |
		perl -e '$/ = "\0"; while (defined($f = <STDIN>) && defined($t = <STDIN>)) { chomp($f, $t); rename($f, $t) or $bad = 1 } exit($bad)' 2>/dev/null
}

# refused is about a record that could not be moved.
refused() {
	local index=$1 kind name expect new how
	planned $index
	if [[ $kind != tree ]]; then skip $index 'it cannot be written'; return; fi
	if [[ ! -d ./$name || -L ./$name ]]; then make_directory; fi
	carry $((index + 1)) $((index + 1 + ${how#* }))
}

remove() {
	if [[ $expect == '**' ]]; then rm -rf "./$name" || skip $index 'it cannot be removed'; return; fi
	if [[ $expect == d ]]; then # a directory goes when it is empty
		if [[ -d ./$name && ! -L ./$name ]] && ! rmdir "./$name" 2>/dev/null; then skip $index 'the directory is not empty'; fi
		return
	fi
	found "$name"
	case $state in
	-) ;;
	"$expect") rm -f "./$name" || skip $index 'it cannot be removed' ;;
	*) skip $index 'it was changed there' ;;
	esac
}

arg token
arg op
case $op in
scan | hash | fetch | talk | send) "$op" ;;
esac
