#!/usr/bin/env bash
# Put the browser files that the static pages need under book/assets, at pinned versions and checksums.
# Run from anywhere; needs npm and the npm registry. The result is committed: a build needs no network.
set -euo pipefail
assets=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/book/assets
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

# get PACKAGE VERSION SHA512: unpack one npm package into ./PACKAGE, or stop when its bytes are not the pinned ones.
get() {
  local file sum
  file=$(npm pack --silent "$1@$2")
  sum=$(openssl dgst -sha512 -binary "$file" | openssl base64 -A)
  [ "$sum" = "$3" ] || { echo "$1@$2: sha512-$sum is not the pinned sha512-$3" >&2; exit 1; }
  mkdir -p "$1"
  tar xzf "$file" -C "$1" --strip-components=1
}
manager=@jupyter-widgets/html-manager
get requirejs 2.3.8 7/cTSLOdYkNBNJcDMWf+luFvMriVm7eYxp4BcFCsAX0wF421Vyce5SXP17c+Jd5otXKGNehIonFlyQXSowL6Mw==
get $manager 1.0.15 5thBIV6ymNgmPVOHvzx+gGy8ZSKmSazhtGw4/c4xJDVzRhG9PTeQsRjF3FUTopvFi//SABeNz1yp47bCrJ3CQA==
get @jupyter-widgets/base 6.0.11 s4+UM7DlrhCOqWCh18fSPjOOLWQlKb+vTxHvOQbvwqgwe6pEuncykzZ1vbii71G5RC5tZ+lQblYR1SWDNdq3qQ==
get anywidget 0.11.0 LHZgW2j5UjyerZSZcO+BtZPXGMSORQV2bUT480hOR5x/BXS8sOradi/71amJfMueSEnKX0dqPwTfsOGHTsyZpQ==
get mathjax 3.2.2 Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw==

widgets=$assets/widgets
mathjax=$assets/mathjax
rm -rf "$widgets/@jupyter-widgets" "$mathjax" "$assets/licences"
mkdir -p "$widgets/$manager/dist" "$mathjax"/{output/chtml/fonts/woff-v2,input/tex/extensions} "$assets/licences"
# Text files: lines without trailing blanks, one newline at the end, so that `git diff --check` stays quiet.
tidy() { tr -d '\r' <"$1" | sed -e 's/[[:space:]]*$//' >"$2"; }

cp requirejs/require.js $manager/dist/embed-amd.js "$widgets/"
cp anywidget/dist/index.js "$widgets/anywidget.js"
# html-manager's style sheets ask for the icon font at both places, by the module that holds them.
cp $manager/dist/*.woff2 "$widgets/$manager/dist/"
cp $manager/dist/*.woff2 "$widgets/@jupyter-widgets/"
cp mathjax/es5/tex-mml-chtml.js "$mathjax/"
cp mathjax/es5/output/chtml/fonts/woff-v2/*.woff "$mathjax/output/chtml/fonts/woff-v2/"
cp mathjax/es5/input/tex/extensions/*.js "$mathjax/input/tex/extensions/"
rm "$mathjax/input/tex/extensions/all-packages.js" # the others in one file; never asked for by name

tidy anywidget/LICENSE "$assets/licences/anywidget.txt"
tidy mathjax/LICENSE "$assets/licences/mathjax.txt"
# html-manager ships no licence file; its sister package of the same repository does.
tidy @jupyter-widgets/base/LICENSE "$assets/licences/jupyter-widgets.txt"
tidy $manager/dist/embed.js.LICENSE.txt "$assets/licences/jupyter-widgets-bundled.txt"
# requirejs ships no licence file; its script opens with the notice, which names the MIT licence.
{
  sed -n '2,3s/^ \* //p' requirejs/require.js
  sed '1,/^Copyright/d' anywidget/LICENSE
} >"$assets/licences/requirejs.txt"
chmod -R u=rwX,go=rX "$assets"
