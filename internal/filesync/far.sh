# The far side of file transfer. Runs on bash 3.2 and newer; names are data: they arrive on standard input or in a file,
# never in a command line of ours. Lists for xargs end each name with NUL; lists that bash itself reads have one escaped
# field a line (\\ and \n), since bash reads those in blocks and everything else a byte at a time.
export LC_ALL=C TZ=UTC0
unset -v BASH_ENV CDPATH TAR_OPTIONS GZIP ZSTD_CLEVEL ZSTD_NBTHREADS POSIXLY_CORRECT
set -f

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
		if [[ -d $root ]]; then printf 'denied\n'; else printf 'none\n'; fi
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
	list) xargs -0 "${stats[@]}" 2>/dev/null ;;
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
# whether a stage is there; "list" asks for the hashes in it, "fresh" empties it, "ping" is answered; "go COMPRESSION"
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
		fresh) rm -rf "./$stage"; make_stage ;;
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
	complete=0
	if [[ -f $stage/plan && -f $stage/book ]]; then survey; fi
	((complete)) && return 0
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

# planned reads the next record of the plan.
planned() {
	IFS= read -r kind && IFS= read -r name && IFS= read -r expect && IFS= read -r new && IFS= read -r how || return
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

# assemble puts a file together from its parts: "size mode time count", then "offset file" lines, which it reads in any case.
assemble() {
	local size mode stamp count offset part ok=1 file=$stage/new/$name
	IFS=' ' read -r size mode stamp count <<<"$how"
	mkdir -p "${file%/*}" && : >"$file" || ok=0
	while ((count-- > 0)); do
		IFS=' ' read -r offset part
		((ok)) && dd if="$stage/part/$part" of="$file" bs=4096 seek=$((offset / 4096)) conv=notrunc 2>/dev/null || ok=0
		rm -f "./$stage/part/$part"
	done
	((ok)) && dd if=/dev/null of="$file" bs=1 seek="$size" count=0 2>/dev/null || ok=0
	((ok)) && chmod "$mode" "$file" && touch -t "$stamp" "$file" || ok=0
	if ((!ok)); then rm -f "$file"; return 1; fi
}

# survey is the first walk through the plan: it puts together what came in parts, lists what stands where something is to
# go, hashes the plain files among that at once, lists all names for the stamps, and sees whether the plan is complete.
survey() {
	local kind name expect new how
	while planned; do
		case $kind in
		end) complete=1 ;;
		put | parts) printf '%s\0' "./$name" >&5 ;;
		esac
		if [[ $kind == parts ]] && ! assemble; then tarred=1; fi
		case $expect in '*' | -) continue ;; esac
		case $name in *[\\$'\n\r']*) continue ;; esac
		state "./$name"
		[[ $state != f ]] || printf '%s\0' "./$name" >&4
	done <"$stage/plan" 4>"$stage/hash" 5>"$stage/paths"
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

# commit carries the plan out. Files that go into one directory are moved by one mv; a directory that is not there yet is
# moved whole.
commit() {
	local kind name expect new how state hashed index=-1 whole_tree=/ dir='' parent i
	local -a moves numbers
	moves=() numbers=()
	while planned <&3; do
		index=$((index + 1))
		if [[ $kind == parts ]]; then
			for ((i = ${how##* }; i > 0; i--)); do IFS= read -r _ <&3; done
			kind=put
		fi
		# Below a directory that was moved whole everything is in its place; "chmod" is still to be done.
		if [[ $kind != chmod && $name/ == "$whole_tree"* ]]; then continue; fi
		case $name in */*) parent=${name%/*} ;; *) parent=. ;; esac
		if [[ $kind != put || $parent != "$dir" ]]; then flush; fi
		case $kind in
		tree | dir) directory ;;
		put) put ;;
		remove) remove ;;
		end) ;;
		chmod) chmod "$how" "./$name" 2>/dev/null || skip $index 'its mode cannot be set' ;;
		*) skip $index "unknown: $kind" ;;
		esac
	done 3<"$stage/plan" 6<"$stage/hashed"
	flush
	printf 'committed %d\n' "$index"
}

directory() {
	if [[ -d ./$name && (! -L ./$name || $expect == follow) ]]; then return; fi
	if [[ -e ./$name || -L ./$name ]]; then
		if [[ $expect != '*' ]]; then skip $index 'something else is in its place'; return; fi
		rm -f "./$name"
	fi
	if [[ $kind == tree && -d $stage/new/$name ]] && ((tarred == 0)) && mv "./$stage/new/$name" "./$name" 2>/dev/null; then
		whole_tree=$name/
		return
	fi
	if (umask "$was"; mkdir -p "./$name"); then chmod "$how" "./$name"; else skip $index 'the directory cannot be made'; fi
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
	dir=$parent
	if [[ ! -d ./$dir ]] && ! (umask "$was"; mkdir -p "./$dir"); then skip $index 'its directory cannot be made'; return; fi
	moves[${#moves[@]}]=./$stage/new/$name
	numbers[${#numbers[@]}]=$index
	if ((${#moves[@]} >= 500)); then flush; fi
}

# flush moves what was gathered for $dir; where that fails, one by one to find out which.
flush() {
	if ((${#moves[@]})) && ! mv -f "${moves[@]}" "./$dir/" 2>/dev/null; then
		for ((i = 0; i < ${#moves[@]}; i++)); do
			[[ -e ${moves[i]} || -L ${moves[i]} ]] || continue
			mv -f "${moves[i]}" "./$dir/" || skip "${numbers[i]}" 'it cannot be written'
		done
	fi
	moves=() numbers=() dir=
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
