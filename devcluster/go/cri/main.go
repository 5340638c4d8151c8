// Cri asks the container runtime for what devcluster needs of it:
//
//	cri SOCKET pull IMAGE      fetch an image, print its id
//	cri SOCKET prune           remove images that have lost their name and are in no container
//	cri SOCKET images          print "name<TAB>id<TAB>bytes", one a line
//	cri SOCKET stop-pods       stop and remove every pod
//	cri SOCKET version         print the runtime's name and version
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
)

// callTimeout bounds one call; a pull unpacks layers of several GiB within it.
const callTimeout = 15 * time.Minute

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cri:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("usage: cri SOCKET pull IMAGE | prune | images | stop-pods | version")
	}
	images, err := remote.NewRemoteImageService("unix://"+arguments[0], callTimeout, nil, nil)
	if err != nil {
		return err
	}
	runtime, err := remote.NewRemoteRuntimeService("unix://"+arguments[0], callTimeout, nil, nil)
	if err != nil {
		return err
	}
	switch command := arguments[1]; {
	case command == "pull" && len(arguments) == 3:
		return pull(ctx, images, arguments[2])
	case command == "prune":
		return prune(ctx, images, runtime)
	case command == "images":
		return list(ctx, images)
	case command == "stop-pods":
		return stopPods(ctx, runtime)
	case command == "version":
		return version(ctx, runtime)
	default:
		return fmt.Errorf("unknown command %q", command)
	}
}

func pull(ctx context.Context, images internalapi.ImageManagerService, name string) error {
	id, err := images.PullImage(ctx, &runtimeapi.ImageSpec{Image: name}, nil, nil)
	if err != nil {
		return err
	}
	fmt.Println(id)
	return nil
}

func prune(ctx context.Context, images internalapi.ImageManagerService, runtime internalapi.RuntimeService) error {
	present, err := images.ListImages(ctx, &runtimeapi.ImageFilter{})
	if err != nil {
		return err
	}
	containers, err := runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{})
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, container := range containers {
		used[container.ImageRef] = true
		used[container.GetImage().GetImage()] = true
	}
	for _, image := range present {
		if len(image.RepoTags) > 0 || used[image.Id] {
			continue
		}
		if err := images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: image.Id}); err != nil {
			return err
		}
	}
	return nil
}

func list(ctx context.Context, images internalapi.ImageManagerService) error {
	present, err := images.ListImages(ctx, &runtimeapi.ImageFilter{})
	if err != nil {
		return err
	}
	for _, image := range present {
		for _, tag := range image.RepoTags {
			fmt.Printf("%s\t%s\t%d\n", tag, image.Id, image.Size)
		}
	}
	return nil
}

func stopPods(ctx context.Context, runtime internalapi.RuntimeService) error {
	sandboxes, err := runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{})
	if err != nil {
		return err
	}
	var failures []error
	for _, sandbox := range sandboxes {
		if err := runtime.StopPodSandbox(ctx, sandbox.Id); err != nil {
			failures = append(failures, err)
			continue
		}
		failures = append(failures, runtime.RemovePodSandbox(ctx, sandbox.Id))
	}
	return errors.Join(failures...)
}

func version(ctx context.Context, runtime internalapi.RuntimeService) error {
	answer, err := runtime.Version(ctx, "")
	if err != nil {
		return err
	}
	fmt.Println(answer.RuntimeName, answer.RuntimeVersion)
	return nil
}
