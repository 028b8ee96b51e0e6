"""The parts of a running gate: asking a remote that may fail, its protocol, and a policy's state on disk."""




