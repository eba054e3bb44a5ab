mkdir "$ROOT/opt/releases"
cp "$RELEASES"/*/*.deb "$ROOT/opt/releases"
