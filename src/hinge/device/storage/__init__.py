"""A policy's state on disk, through crashes, power losses and failing disks."""




