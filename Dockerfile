# One static binary and nothing else. The build context holds linux/amd64/carillon and
# linux/arm64/carillon (make dist); TARGETPLATFORM chooses, one image per architecture.
FROM scratch
ARG TARGETPLATFORM=linux/amd64
COPY ${TARGETPLATFORM}/carillon /carillon
USER 65532:65532
ENTRYPOINT ["/carillon"]
